export class VariationalView { constructor(){} close(){} show(){} }
