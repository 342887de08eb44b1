export class ActiveView { constructor(){} close(){} show(){} }
