export class BoundariesView { constructor(){} close(){} show(){} }
